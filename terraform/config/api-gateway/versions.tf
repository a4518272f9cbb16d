terraform {
  required_version = ">= 1.11"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "5.100.0"
    }
  }

  # Bucket and key come from the step program: the target account's own bucket, and a key that names environment and
  # region deployment, so that two deployments never share a state.
  backend "s3" {
    encrypt      = true
    use_lockfile = true
  }
}

provider "aws" {
  region = var.region

  assume_role {
    role_arn     = "arn:aws:iam::${var.account_id}:role/OrganizationAccountAccessRole"
    session_name = "provision-api-gateway"
  }

  default_tags {
    tags = {
      environment   = var.environment
      region_alias  = var.region_alias
      app_code      = var.app_code
      service_phase = var.service_phase
      cost_center   = var.cost_center
      provisioned   = "terraform/config/api-gateway"
    }
  }
}
