"""Running a float or fixed model, and its tensors as the SDK's simulators dump them."""
