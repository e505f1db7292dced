"""The figures of the paper; `style` is shared by all."""
