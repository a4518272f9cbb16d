# First half of bringing an agent to the broker, in the regional account.

module "agent" {
  source             = "../../modules/maestro-agent-iot"
  name               = "${var.environment}-${var.region_alias}-${var.cluster_id}"
  certificate_pem    = var.certificate_pem
  ca_certificate_pem = var.ca_certificate_pem
}
