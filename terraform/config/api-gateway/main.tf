# The region's edge: signed requests in, to the Platform API through a private link.

module "api" {
  source             = "../../modules/api-gateway"
  name               = "${var.environment}-${var.alias}"
  vpc_id             = var.vpc_id
  private_subnet_ids = var.private_subnet_ids
  target_port        = var.platform_api_port
}

module "secrets" {
  source = "../../modules/secrets"
  name   = "${var.environment}-${var.alias}-platform-api"
  secrets = {
    "platform-api/gateway-secret" = "Shared by the gateway and the Platform API; written by the step program"
    "platform-api/config"         = "Settings of the Platform API"
  }
}

# Nothing secret in it: the region's own account runs the region.
resource "aws_secretsmanager_secret_version" "config" {
  secret_id     = module.secrets.arns["platform-api/config"]
  secret_string = jsonencode({ privilegedAccounts = var.account_id })
}
