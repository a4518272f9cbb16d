# The broker's side of Maestro's server.

module "broker" {
  source             = "../../modules/maestro-broker"
  name               = "${var.environment}-${var.alias}"
  region_id          = "${var.environment}-${var.region_alias}"
  certificate_pem    = var.server_certificate_pem
  ca_certificate_pem = var.ca_certificate_pem
}
