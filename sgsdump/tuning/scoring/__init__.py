"""What a quant plan is worth: scored on pictures, remembered, predicted."""
