# Network facts of the Regional Cluster.

module "network" {
  source                  = "../../modules/network"
  name                    = "${var.environment}-${var.alias}"
  vpc_cidr                = var.vpc_cidr
  availability_zone_count = var.availability_zone_count
}
