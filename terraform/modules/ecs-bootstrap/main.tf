# The bootstrap task: runs once inside the VPC, because the cluster's API answers nowhere else, and hands the cluster to
# GitOps. `ecs run-task` adds GIT_REPO and GIT_REVISION as overrides, and FACTS for what other roots know (words such as
# api_target_group_arn=arn:…, with blanks between them); everything else is fixed here.

data "aws_region" "current" {}

locals {
  environment = {
    AWS_REGION   = data.aws_region.current.name
    CLUSTER      = var.cluster
    CLUSTER_NAME = var.cluster_name
    CLUSTER_TYPE = var.cluster_type
    ENVIRONMENT  = var.environment
    REGION_ALIAS = var.region_alias
    KUBECONFIG   = "/tmp/kubeconfig"
  }
  command = [
    "aws eks update-kubeconfig --name \"$CLUSTER_NAME\" --region \"$AWS_REGION\" --kubeconfig \"$KUBECONFIG\"",
    join(" ", [
      "exec regionctl bootstrap --kubeconfig \"$KUBECONFIG\" --cluster \"$CLUSTER\" --cluster-name \"$CLUSTER_NAME\"",
      "--cluster-type \"$CLUSTER_TYPE\" --environment \"$ENVIRONMENT\" --region \"$REGION_ALIAS\"",
      "--aws-region \"$AWS_REGION\" --git-repo \"$GIT_REPO\" --git-revision \"$GIT_REVISION\"",
    ]),
  ]
}

resource "aws_ecs_cluster" "this" {
  name = "${var.cluster_name}-bootstrap"
  setting {
    name  = "containerInsights"
    value = "enabled"
  }
}

resource "aws_cloudwatch_log_group" "this" {
  name              = "/ecs/${var.cluster_name}/bootstrap"
  retention_in_days = 365
}

data "aws_iam_policy_document" "trust" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["ecs-tasks.amazonaws.com"]
    }
  }
}

# Pulls the image and writes the log; the program itself never has these rights.
resource "aws_iam_role" "execution" {
  name               = "${var.cluster_name}-bootstrap-execution"
  assume_role_policy = data.aws_iam_policy_document.trust.json
}

resource "aws_iam_role_policy_attachment" "execution" {
  role       = aws_iam_role.execution.name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AmazonECSTaskExecutionRolePolicy"
}

resource "aws_iam_role" "task" {
  name               = "${var.cluster_name}-bootstrap"
  assume_role_policy = data.aws_iam_policy_document.trust.json
}

data "aws_iam_policy_document" "task" {
  statement {
    actions   = ["eks:DescribeCluster"]
    resources = [var.cluster_arn]
  }
}

resource "aws_iam_role_policy" "task" {
  name   = "describe-own-cluster"
  role   = aws_iam_role.task.name
  policy = data.aws_iam_policy_document.task.json
}

resource "aws_security_group" "task" {
  name_prefix = "${var.cluster_name}-bootstrap-"
  description = "Bootstrap task of ${var.cluster_name}"
  vpc_id      = var.vpc_id
  tags        = { Name = "${var.cluster_name}-bootstrap" }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_egress_rule" "https" {
  security_group_id = aws_security_group.task.id
  description       = "HTTPS to the cluster, to AWS and to Git"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_vpc_security_group_ingress_rule" "cluster" {
  security_group_id            = var.cluster_security_group_id
  description                  = "Kubernetes API from the bootstrap task"
  referenced_security_group_id = aws_security_group.task.id
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
}

resource "aws_eks_access_entry" "task" {
  cluster_name  = var.cluster_name
  principal_arn = aws_iam_role.task.arn
}

resource "aws_eks_access_policy_association" "task" {
  cluster_name  = var.cluster_name
  principal_arn = aws_eks_access_entry.task.principal_arn
  policy_arn    = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
  access_scope {
    type = "cluster"
  }
}

resource "aws_ecs_task_definition" "this" {
  family                   = "${var.cluster_name}-bootstrap"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = 256
  memory                   = 512
  execution_role_arn       = aws_iam_role.execution.arn
  task_role_arn            = aws_iam_role.task.arn

  container_definitions = jsonencode([{
    name        = "bootstrap"
    image       = var.image
    essential   = true
    entryPoint  = ["sh", "-ec"]
    command     = [join("\n", local.command)]
    environment = [for name in sort(keys(local.environment)) : { name = name, value = local.environment[name] }]
    user        = "65534"
    logConfiguration = {
      logDriver = "awslogs"
      options = {
        awslogs-group         = aws_cloudwatch_log_group.this.name
        awslogs-region        = data.aws_region.current.name
        awslogs-stream-prefix = "bootstrap"
      }
    }
  }])
}
