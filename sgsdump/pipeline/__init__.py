"""Dump a model by any executor; bisection to the first difference; stand-alone test cases."""
