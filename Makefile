# The commands that a contributor types. `make` lists them.
.DEFAULT_GOAL := help
.PHONY: help install test lint docs package

help:  ## list the commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST)

install:  ## install the package and everything for development into the current environment
	pip install -e '.[test,docs]'

test:  ## run the default tests
	pytest

lint:  ## format, lint and check types
	ruff format . && ruff check . && mypy

docs:  ## build the site into site/
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

package:  ## build the wheel and the sdist into dist/
	python -m build
