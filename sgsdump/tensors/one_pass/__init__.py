"""Single passes over floats: ``compiled`` where the kernel is installed, else numpy with the same result."""
