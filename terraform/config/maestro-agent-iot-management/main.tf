# Second half of bringing an agent to the broker, in the Management Cluster's account: places for what the step program
# carries over from the regional account.

module "secrets" {
  source = "../../modules/secrets"
  name   = "${var.environment}-${var.region_alias}-${var.cluster_id}-maestro-agent"
  secrets = {
    "maestro/agent-cert"   = "Certificate and key of Maestro's agent; written by the step program"
    "maestro/agent-config" = "Broker, topics and consumer name for Maestro's agent; written by the step program"
  }
}
