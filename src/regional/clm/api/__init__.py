"""The API of hosted clusters and node pools, over the one database that holds them."""
