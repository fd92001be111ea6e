"""How Ascend numbers its element types, and how their elements are encoded."""
