output "invoke_url" {
  value = "https://${aws_api_gateway_rest_api.this.id}.execute-api.${data.aws_region.current.name}.amazonaws.com/prod"
}

output "rest_api_id" {
  value = aws_api_gateway_rest_api.this.id
}

output "deployment_id" {
  value = aws_api_gateway_deployment.this.id
}

output "target_group_arn" {
  value = aws_lb_target_group.this.arn
}

output "security_group_id" {
  value = aws_security_group.this.id
}
