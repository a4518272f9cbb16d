# The authority that signs every broker certificate of the region.

module "private_ca" {
  source      = "../../modules/private-ca"
  common_name = "${var.environment}-${var.alias} broker"
}
