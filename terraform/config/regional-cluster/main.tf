# The Regional Cluster: takes customers' requests and holds the truth.

locals {
  name = "${var.environment}-${var.alias}"
}

module "cluster" {
  source             = "../../modules/eks-cluster"
  name               = local.name
  kubernetes_version = var.kubernetes_version
  private_subnet_ids = var.private_subnet_ids
}

resource "aws_vpc_security_group_ingress_rule" "database" {
  security_group_id            = var.database_security_group_id
  description                  = "PostgreSQL from the Regional Cluster"
  referenced_security_group_id = module.cluster.security_group_id
  ip_protocol                  = "tcp"
  from_port                    = 5432
  to_port                      = 5432
}

resource "aws_vpc_security_group_ingress_rule" "platform_api" {
  security_group_id            = module.cluster.security_group_id
  description                  = "The Platform API from its load balancer"
  referenced_security_group_id = var.api_security_group_id
  ip_protocol                  = "tcp"
  from_port                    = var.platform_api_port
  to_port                      = var.platform_api_port
}

module "maestro_server_identity" {
  source          = "../../modules/pod-identity"
  cluster_name    = module.cluster.name
  namespace       = "maestro-server"
  service_account = "maestro-server"
  secret_arns     = [var.maestro_db_secret_arn, var.server_cert_secret_arn, var.server_config_secret_arn]
}

module "clm_identity" {
  source          = "../../modules/pod-identity"
  cluster_name    = module.cluster.name
  namespace       = "clm"
  service_account = "clm"
  secret_arns     = [var.clm_db_secret_arn]
}

module "platform_api_identity" {
  source          = "../../modules/pod-identity"
  cluster_name    = module.cluster.name
  namespace       = "platform-api"
  service_account = "platform-api-sa"
  secret_arns     = [var.gateway_secret_arn, var.platform_api_config_secret_arn]
}

module "bootstrap" {
  source                    = "../../modules/ecs-bootstrap"
  cluster                   = "rc"
  cluster_name              = module.cluster.name
  cluster_arn               = module.cluster.arn
  cluster_type              = "regional-cluster"
  cluster_security_group_id = module.cluster.security_group_id
  vpc_id                    = var.vpc_id
  environment               = var.environment
  region_alias              = var.region_alias
  image                     = var.image
}
