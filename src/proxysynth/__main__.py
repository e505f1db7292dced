"""`python -m proxysynth` is the command `proxysynth`."""

from proxysynth.cli import main

if __name__ == "__main__":
    main()
