"""What runs in the environments of other products: how each is filled, submitted to and worked, and its marks."""
