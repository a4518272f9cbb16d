# A Management Cluster: hosts customers' control planes. It has a VPC of its own and knows the Regional Cluster only as
# messages from the broker.

locals {
  name = "${var.environment}-${var.region_alias}-${var.alias}"
}

module "network" {
  source                  = "../../modules/network"
  name                    = local.name
  vpc_cidr                = var.vpc_cidr
  availability_zone_count = var.availability_zone_count
}

module "cluster" {
  source             = "../../modules/eks-cluster"
  name               = local.name
  kubernetes_version = var.kubernetes_version
  private_subnet_ids = module.network.private_subnet_ids
}

module "maestro_agent_identity" {
  source          = "../../modules/pod-identity"
  cluster_name    = module.cluster.name
  namespace       = "maestro-agent"
  service_account = "maestro-agent"
  secret_arns     = [var.agent_cert_secret_arn, var.agent_config_secret_arn]
}

module "bootstrap" {
  source                    = "../../modules/ecs-bootstrap"
  cluster                   = var.cluster_id
  cluster_name              = module.cluster.name
  cluster_arn               = module.cluster.arn
  cluster_type              = "management-cluster"
  cluster_security_group_id = module.cluster.security_group_id
  vpc_id                    = module.network.vpc_id
  environment               = var.environment
  region_alias              = var.region_alias
  image                     = var.image
}
