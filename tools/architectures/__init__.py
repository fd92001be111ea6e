"""Networks of known architectures with drawn weights."""
