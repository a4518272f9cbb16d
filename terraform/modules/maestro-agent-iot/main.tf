# One Maestro agent at the broker: its certificate, registered, and what the certificate's name may do. The key and the
# signing request never come here: the step program makes them, has the region's authority sign, and passes the
# certificate alone.

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

locals {
  iot    = "arn:${data.aws_partition.current.partition}:iot:${data.aws_region.current.name}:${data.aws_caller_identity.current.account_id}"
  name   = "$${iot:Certificate.Subject.CommonName}"
  topics = "sources/maestro/consumers/${local.name}"
}

resource "aws_iot_certificate" "agent" {
  certificate_pem = var.certificate_pem
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
        # The second is what the Go agent makes of --cloudevents-client-id=<consumer>-work-agent.
        Resource = ["${local.iot}:client/${local.name}", "${local.iot}:client/${local.name}-work-agent-client"]
      },
      { Effect = "Allow", Action = "iot:Publish", Resource = "${local.iot}:topic/${local.topics}/agentevents" },
      { Effect = "Allow", Action = "iot:Receive", Resource = "${local.iot}:topic/${local.topics}/sourceevents" },
      { Effect = "Allow", Action = "iot:Subscribe", Resource = "${local.iot}:topicfilter/${local.topics}/sourceevents" },
    ]
  })
}

resource "aws_iot_policy_attachment" "agent" {
  policy = aws_iot_policy.agent.name
  target = aws_iot_certificate.agent.arn
}
