"""What a managed platform sends: every field of its HostedCluster and NodePool is taken, in its own order."""

from __future__ import annotations

from regional.kube.objects import condition_of, is_true, labels_of, status_of
from tests.hypershift.harness import HYPERSHIFT, RELEASE, Operated, from_yaml, pull_secret

ID = "0d9e6a52-7c0e-4f43-9d5a-6b1c3f6a2e10"
NAMESPACE = f"clusters-{ID}"
ROLE = "arn:aws:iam::111122223333:role/x"
HOSTED = f"""
apiVersion: {HYPERSHIFT}
kind: HostedCluster
metadata:
  name: shop
  namespace: {NAMESPACE}
  labels: {{api.openshift.com/id: {ID}, api.openshift.com/name: shop}}
  annotations: {{hypershift.openshift.io/cleanup-cloud-resources: "true"}}
spec:
  release: {{image: {RELEASE}}}
  channel: stable-4.21
  clusterID: {ID}
  infraID: shop-infra
  pullSecret: {{name: pull-secret}}
  sshKey: {{name: ssh-key}}
  fips: true
  controllerAvailabilityPolicy: HighlyAvailable
  infrastructureAvailabilityPolicy: HighlyAvailable
  issuerURL: https://oidc.example.com/{ID}
  kubeAPIServerDNSName: api-ext.shop.a1b2.example.com
  dns: {{baseDomain: a1b2.example.com, baseDomainPrefix: shop, publicZoneID: Z0PUB, privateZoneID: Z0PRV}}
  networking:
    networkType: OVNKubernetes
    clusterNetwork: [{{cidr: 10.128.0.0/14, hostPrefix: 23}}]
    serviceNetwork: [{{cidr: 172.30.0.0/16}}]
    machineNetwork: [{{cidr: 10.0.0.0/16}}]
    apiServer: {{allowedCIDRBlocks: [198.51.100.0/24]}}
  etcd:
    managementType: Managed
    managed: {{storage: {{type: PersistentVolume, persistentVolume: {{size: 32Gi, storageClassName: gp3-csi}}}}}}
  services:
  - {{service: APIServer, servicePublishingStrategy: {{type: Route, route: {{hostname: api.shop.a1b2.example.com}}}}}}
  - {{service: OAuthServer, servicePublishingStrategy: {{type: Route, route: {{hostname: oauth.a1b2.example.com}}}}}}
  - {{service: Konnectivity, servicePublishingStrategy: {{type: Route}}}}
  - {{service: Ignition, servicePublishingStrategy: {{type: Route}}}}
  platform:
    type: AWS
    aws:
      region: us-east-1
      endpointAccess: Public
      multiArch: true
      cloudProviderConfig: {{vpc: vpc-0a1, zone: us-east-1a, subnet: {{id: subnet-0a1}}}}
      resourceTags: [{{key: red-hat-managed, value: "true"}}]
      rolesRef:
        ingressARN: {ROLE}
        imageRegistryARN: {ROLE}
        storageARN: {ROLE}
        networkARN: {ROLE}
        kubeCloudControllerARN: {ROLE}
        nodePoolManagementARN: {ROLE}
        controlPlaneOperatorARN: {ROLE}
  autoscaling: {{maxNodesTotal: 100, expanders: [Priority, LeastWaste]}}
  configuration: {{apiServer: {{audit: {{profile: Default}}}}}}
"""
POOL = f"""
apiVersion: {HYPERSHIFT}
kind: NodePool
metadata: {{name: shop-workers, namespace: {NAMESPACE}}}
spec:
  clusterName: shop
  release: {{image: {RELEASE}}}
  replicas: 2
  management:
    upgradeType: Replace
    autoRepair: true
    replace: {{strategy: RollingUpdate, rollingUpdate: {{maxSurge: 1, maxUnavailable: 0}}}}
  nodeLabels: {{pool: workers}}
  taints: [{{key: team, value: a, effect: NoSchedule}}]
  nodeDrainTimeout: 30m
  platform:
    type: AWS
    aws:
      instanceType: m6a.2xlarge
      subnet: {{id: subnet-0a1}}
      rootVolume: {{size: 120, type: gp3}}
      securityGroups: [{{id: sg-0a1}}]
      resourceTags: [{{key: red-hat-managed, value: "true"}}]
"""


async def test_the_objects_of_a_managed_platform_come_up_in_its_order(mc: Operated) -> None:
    """The cluster before its pool, and both before the pull secret."""
    await mc.namespace(NAMESPACE)
    mc.made.add(("shop", NAMESPACE))
    await mc.client.create(from_yaml(HOSTED))
    await mc.client.create(from_yaml(POOL))
    await mc.client.create(pull_secret(NAMESPACE))
    hosted = await mc.available("shop", NAMESPACE)
    await mc.pool_ready("shop-workers", NAMESPACE, 2)
    hosted = await mc.told("HostedCluster", "shop", NAMESPACE, "Degraded", "False", "AsExpected")
    assert (condition_of(hosted, "PlatformCredentialsFound") or {})["status"] == "True"
    assert status_of(hosted)["version"]["history"][0]["version"] == "4.21.3"
    plane = await mc.client.get(HYPERSHIFT, "HostedControlPlane", "shop", f"{NAMESPACE}-shop")
    assert labels_of(plane)["api.openshift.com/id"] == ID
    async with mc.guest("shop", NAMESPACE) as client:
        nodes = await client.list("v1", "Node")
        issuer = await client.request("GET", "/.well-known/openid-configuration")
    assert [status_of(node)["capacity"]["cpu"] for node in nodes] == ["8", "8"]
    assert all(is_true(node, "Ready") for node in nodes)
    assert {labels_of(node)["topology.kubernetes.io/zone"] for node in nodes} == {"us-east-1a"}
    assert f"https://oidc.example.com/{ID}".encode() in issuer[2]
