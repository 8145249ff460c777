"""What nsys itself says of a profile: `reports` as `nsys stats` and `nsys analyze`, `recipes` as `nsys recipe`."""
