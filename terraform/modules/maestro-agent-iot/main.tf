# One Maestro agent at the broker: its certificate, registered, and what the certificate's name may do. The key and the
# signing request never come here: the step program makes them, has the region's authority sign, and passes the
# certificate alone. While a certificate is rotated, the former one stays beside the newest until the agent was seen with
# the newest.

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

locals {
  iot    = "arn:${data.aws_partition.current.partition}:iot:${data.aws_region.current.name}:${data.aws_caller_identity.current.account_id}"
  name   = "$${iot:Certificate.Subject.CommonName}"
  client = "${local.iot}:client/${var.region_id}.${local.name}"
  topics = "sources/maestro-${var.region_id}/consumers/${local.name}"

  # By what they are, not by their place: the newest becomes a former one without being touched.
  certificates = { for pem in concat([var.certificate_pem], var.former_certificates_pem) : sha256(pem) => pem }
}

resource "aws_iot_certificate" "agent" {
  for_each        = local.certificates
  certificate_pem = each.value
  ca_pem          = var.ca_certificate_pem
  active          = true

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_iot_policy" "agent" {
  name = "${var.name}-maestro-agent"
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect = "Allow"
        Action = "iot:Connect"
        # The second is what the Go agent makes of --cloudevents-client-id=<region id>.<consumer>-work-agent.
        Resource = [local.client, "${local.client}-work-agent-client"]
      },
      { Effect = "Allow", Action = "iot:Publish", Resource = "${local.iot}:topic/${local.topics}/agentevents" },
      { Effect = "Allow", Action = "iot:Receive", Resource = "${local.iot}:topic/${local.topics}/sourceevents" },
      { Effect = "Allow", Action = "iot:Subscribe", Resource = "${local.iot}:topicfilter/${local.topics}/sourceevents" },
    ]
  })
}

resource "aws_iot_policy_attachment" "agent" {
  for_each = local.certificates
  policy   = aws_iot_policy.agent.name
  target   = aws_iot_certificate.agent[each.key].arn
}
