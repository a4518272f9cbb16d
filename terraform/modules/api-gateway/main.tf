# A REST API that takes every path, checks AWS signatures (AWS_IAM), and hands requests on through a private link. Who
# asks is said in headers that are mapped from what API Gateway has proven; a client's own headers of these names are
# overwritten. The stage is made by the step program: its variable `gatewaySecret` must not be read into a state.

data "aws_region" "current" {}

data "aws_vpc" "this" {
  id = var.vpc_id
}

resource "aws_security_group" "this" {
  name        = "${var.name}-api"
  description = "Load balancer of the Platform API of ${var.name}"
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_ingress_rule" "link" {
  security_group_id = aws_security_group.this.id
  description       = "The private link's addresses are the load balancer's own"
  cidr_ipv4         = data.aws_vpc.this.cidr_block
  ip_protocol       = "tcp"
  from_port         = 80
  to_port           = 80
}

resource "aws_vpc_security_group_egress_rule" "pods" {
  security_group_id = aws_security_group.this.id
  description       = "Pods of the Platform API"
  cidr_ipv4         = data.aws_vpc.this.cidr_block
  ip_protocol       = "tcp"
  from_port         = var.target_port
  to_port           = var.target_port
}

# Names of load balancers and target groups may have 32 characters.
resource "aws_lb" "this" {
  name_prefix                                                  = "api-"
  internal                                                     = true
  load_balancer_type                                           = "network"
  subnets                                                      = var.private_subnet_ids
  security_groups                                              = [aws_security_group.this.id]
  enable_cross_zone_load_balancing                             = true
  enforce_security_group_inbound_rules_on_private_link_traffic = "on"
}

# The cluster registers its pods here (TargetGroupBinding of the platform-api chart).
resource "aws_lb_target_group" "this" {
  name_prefix          = "api-"
  vpc_id               = var.vpc_id
  target_type          = "ip"
  protocol             = "TCP"
  port                 = var.target_port
  deregistration_delay = 30

  health_check {
    protocol = "HTTP"
    path     = "/v0/live"
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_lb_listener" "this" {
  load_balancer_arn = aws_lb.this.arn
  protocol          = "TCP"
  port              = 80

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.this.arn
  }
}

resource "aws_api_gateway_vpc_link" "this" {
  name        = var.name
  target_arns = [aws_lb.this.arn]
}

resource "aws_api_gateway_rest_api" "this" {
  name        = var.name
  description = "Customers' requests to ${var.name}"

  endpoint_configuration {
    types = ["REGIONAL"]
  }
}

resource "aws_api_gateway_resource" "any" {
  rest_api_id = aws_api_gateway_rest_api.this.id
  parent_id   = aws_api_gateway_rest_api.this.root_resource_id
  path_part   = "{proxy+}"
}

resource "aws_api_gateway_method" "any" {
  rest_api_id   = aws_api_gateway_rest_api.this.id
  resource_id   = aws_api_gateway_resource.any.id
  http_method   = "ANY"
  authorization = "AWS_IAM"

  request_parameters = {
    "method.request.path.proxy" = true
  }
}

resource "aws_api_gateway_integration" "any" {
  rest_api_id             = aws_api_gateway_rest_api.this.id
  resource_id             = aws_api_gateway_resource.any.id
  http_method             = aws_api_gateway_method.any.http_method
  type                    = "HTTP_PROXY"
  integration_http_method = "ANY"
  uri                     = "http://${aws_lb.this.dns_name}/{proxy}"
  connection_type         = "VPC_LINK"
  connection_id           = aws_api_gateway_vpc_link.this.id
  timeout_milliseconds    = 29000

  request_parameters = {
    "integration.request.path.proxy"              = "method.request.path.proxy"
    "integration.request.header.X-Amz-Account-Id" = "context.identity.accountId"
    "integration.request.header.X-Amz-Caller-Arn" = "context.identity.userArn"
    "integration.request.header.X-Amz-User-Id"    = "context.identity.user"
    "integration.request.header.X-Amz-Source-Ip"  = "context.identity.sourceIp"
    "integration.request.header.X-Amz-Request-Id" = "context.requestId"
    "integration.request.header.X-Request-Id"     = "context.requestId"
    "integration.request.header.X-Gateway-Secret" = "stageVariables.gatewaySecret"
  }
}

resource "aws_api_gateway_deployment" "this" {
  rest_api_id = aws_api_gateway_rest_api.this.id

  triggers = {
    shape = sha1(jsonencode([
      aws_api_gateway_resource.any.path_part,
      aws_api_gateway_method.any,
      aws_api_gateway_integration.any,
    ]))
  }

  lifecycle {
    create_before_destroy = true
  }
}
