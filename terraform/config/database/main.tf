# A database each for Maestro and for CLM. CLM's is the region's truth; Maestro's can be rebuilt from it.

locals {
  name = "${var.environment}-${var.alias}"
}

# Closed until the Regional Cluster opens it for its own nodes.
resource "aws_security_group" "database" {
  name_prefix = "${local.name}-database-"
  description = "Databases of ${local.name}"
  vpc_id      = var.vpc_id
  tags        = { Name = "${local.name}-database" }

  lifecycle {
    create_before_destroy = true
  }
}

module "rds" {
  source              = "../../modules/rds"
  for_each            = toset(["maestro", "clm"])
  service             = each.key
  identifier          = "${local.name}-${each.key}"
  engine_version      = var.engine_version
  instance_class      = var.instance_class
  multi_az            = var.multi_az
  deletion_protection = var.deletion_protection
  private_subnet_ids  = var.private_subnet_ids
  security_group_id   = aws_security_group.database.id
}
