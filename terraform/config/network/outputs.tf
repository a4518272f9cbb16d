output "vpc_id" {
  description = "VPC of the Regional Cluster."
  value       = module.network.vpc_id
}

output "vpc_cidr" {
  description = "Its range."
  value       = module.network.vpc_cidr
}

output "private_subnet_ids" {
  description = "Subnets of the cluster and the database."
  value       = module.network.private_subnet_ids
}

output "public_subnet_ids" {
  description = "Subnets of the NAT gateways."
  value       = module.network.public_subnet_ids
}
