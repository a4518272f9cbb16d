"""Imported by the warm parent only: reads the service descriptions that pipeline steps need, once for all of them."""

from __future__ import annotations

from regional.cloud.aws import warm_up

SERVICES = ("ec2", "ecs", "eks", "iam", "iot", "logs", "organizations", "rds", "s3", "secretsmanager", "ssm", "sts")

warm_up(SERVICES)
