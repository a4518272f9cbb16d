"""`regionctl`: the product's command line. Commands are loaded when they are called, so that none pays for another."""
