# Maestro's server at the broker. Its replicas share one certificate; each adds its pod's name to the certificate's name
# for a client id of its own. Nothing else may use those ids: a certificate's name is what IoT compares them with.

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

data "aws_iot_endpoint" "data" {
  endpoint_type = "iot:Data-ATS"
}

locals {
  iot    = "arn:${data.aws_partition.current.partition}:iot:${data.aws_region.current.name}:${data.aws_caller_identity.current.account_id}"
  name   = "$${iot:Certificate.Subject.CommonName}"
  prefix = "${var.region_id}."
  client = "${local.iot}:client/${local.prefix}${local.name}"
  topics = "sources/maestro-${var.region_id}/consumers"
}

resource "aws_iot_certificate" "server" {
  certificate_pem = var.certificate_pem
  ca_pem          = var.ca_certificate_pem
  active          = true

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_iot_policy" "server" {
  name = "${var.name}-maestro-server"
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      { Effect = "Allow", Action = "iot:Connect", Resource = "${local.client}-*" },
      { Effect = "Allow", Action = "iot:Publish", Resource = "${local.iot}:topic/${local.topics}/*/sourceevents" },
      { Effect = "Allow", Action = "iot:Receive", Resource = "${local.iot}:topic/${local.topics}/*/agentevents" },
      {
        Effect = "Allow"
        Action = "iot:Subscribe"
        Resource = [
          "${local.iot}:topicfilter/${local.topics}/+/agentevents",
          "${local.iot}:topicfilter/$share/statussubscribers/${local.topics}/+/agentevents",
        ]
      },
    ]
  })
}

resource "aws_iot_policy_attachment" "server" {
  policy = aws_iot_policy.server.name
  target = aws_iot_certificate.server.arn
}

module "secrets" {
  source = "../secrets"
  name   = "${var.name}-maestro-server"
  secrets = {
    "maestro/server-cert"   = "Certificate and key of Maestro's server; written by the step program"
    "maestro/server-config" = "Broker and topics for Maestro's server"
  }
}

# Nothing secret in it.
resource "aws_secretsmanager_secret_version" "config" {
  secret_id = module.secrets.arns["maestro/server-config"]
  secret_string = jsonencode({
    config = yamlencode({
      brokerHost     = "${data.aws_iot_endpoint.data.endpoint_address}:8883"
      caFile         = "/mnt/secrets-store/ca.crt"
      clientCertFile = "/mnt/secrets-store/tls.crt"
      clientKeyFile  = "/mnt/secrets-store/tls.key"
      clientIdPrefix = local.prefix
      topics = {
        sourceEvents = "${local.topics}/+/sourceevents"
        agentEvents  = "${local.topics}/+/agentevents"
      }
    })
  })
}
