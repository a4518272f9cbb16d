# First half of bringing an agent to the broker, in the regional account.

module "agent" {
  source                  = "../../modules/maestro-agent-iot"
  name                    = "${var.environment}-${var.region_alias}-${var.cluster_id}"
  region_id               = "${var.environment}-${var.region_alias}"
  certificate_pem         = var.certificate_pem
  former_certificates_pem = var.former_certificates_pem
  ca_certificate_pem      = var.ca_certificate_pem
}
