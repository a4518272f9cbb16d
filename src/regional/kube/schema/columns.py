"""The columns that `kubectl get` shows for each built-in kind, in the order of its cells."""

from __future__ import annotations

RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io"
_BINDING = ("Name", "Role", "Age", "Users*", "Groups*", "ServiceAccounts*")
_WEBHOOKS = ("Name", "Webhooks#", "Age")
_WORKLOAD = ("Containers*", "Images*", "Selector*")

# In the order of the cells; * only in -o wide, # a whole number, ? true or false, ~ a name that is told as plain text.
COLUMNS: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "Pod"): ("Name", "Ready", "Status", "Restarts", "Age", "IP*", "Node*", "Nominated Node*", "Readiness Gates*"),
    ("", "Service"): ("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector*"),
    ("", "Endpoints"): ("Name", "Endpoints", "Age"),
    ("", "Namespace"): ("Name", "Status", "Age"),
    ("", "ConfigMap"): ("Name", "Data", "Age"),
    ("", "Secret"): ("Name", "Type", "Data", "Age"),
    ("", "ServiceAccount"): ("Name", "Age"),
    ("", "LimitRange"): ("Name", "Created At"),
    ("", "ResourceQuota"): ("Name", "Request", "Limit", "Age"),
    ("", "PersistentVolume"): (
        *("Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass"),
        *("VolumeAttributesClass", "Reason", "Age", "VolumeMode*"),
    ),
    ("", "PersistentVolumeClaim"): (
        *("Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age"),
        "VolumeMode*",
    ),
    ("", "Node"): (
        *("Name", "Status", "Roles", "Age", "Version", "Internal-IP*", "External-IP*", "OS-Image*"),
        *("Kernel-Version*", "Container-Runtime*"),
    ),
    ("", "Event"): (
        *("Last Seen", "Type", "Reason", "Object", "Subobject*", "Source*", "Message", "First Seen*", "Count*"),
        "Name*",
    ),
    ("autoscaling", "Scale"): ("Name~", "Desired#", "Available#", "Age"),
    ("apps", "Deployment"): ("Name", "Ready", "Up-to-date", "Available", "Age", *_WORKLOAD),
    ("apps", "StatefulSet"): ("Name", "Ready", "Age", "Containers*", "Images*"),
    ("apps", "ReplicaSet"): ("Name", "Desired#", "Current#", "Ready#", "Age", *_WORKLOAD),
    ("apps", "DaemonSet"): (
        *("Name", "Desired#", "Current#", "Ready#", "Up-to-date#", "Available#", "Node Selector", "Age"),
        *_WORKLOAD,
    ),
    ("apps", "ControllerRevision"): ("Name", "Controller", "Revision", "Age"),
    ("batch", "Job"): ("Name", "Status", "Completions", "Duration", "Age", *_WORKLOAD),
    ("batch", "CronJob"): (
        *("Name", "Schedule", "Timezone", "Suspend?", "Active#", "Last Schedule", "Age"),
        *_WORKLOAD,
    ),
    ("policy", "PodDisruptionBudget"): ("Name", "Min Available", "Max Unavailable", "Allowed Disruptions#", "Age"),
    ("autoscaling", "HorizontalPodAutoscaler"): (
        *("Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"),
    ),
    ("coordination.k8s.io", "Lease"): ("Name", "Holder", "Age"),
    ("discovery.k8s.io", "EndpointSlice"): ("Name", "AddressType", "Ports", "Endpoints", "Age"),
    ("networking.k8s.io", "Ingress"): ("Name", "Class", "Hosts", "Address", "Ports", "Age"),
    ("networking.k8s.io", "IngressClass"): ("Name", "Controller", "Parameters", "Age"),
    ("networking.k8s.io", "NetworkPolicy"): ("Name", "Pod-Selector", "Age"),
    (RBAC, "RoleBinding"): _BINDING,
    (RBAC, "ClusterRoleBinding"): _BINDING,
    ("scheduling.k8s.io", "PriorityClass"): ("Name", "Value#", "Global-Default?", "Age", "PreemptionPolicy"),
    ("storage.k8s.io", "CSIDriver"): (
        *("Name", "AttachRequired?", "PodInfoOnMount?", "StorageCapacity?", "TokenRequests", "RequiresRepublish?"),
        *("Modes", "Age"),
    ),
    ("storage.k8s.io", "StorageClass"): (
        *("Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"),
    ),
    ("certificates.k8s.io", "CertificateSigningRequest"): (
        *("Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"),
    ),
    ("apiregistration.k8s.io", "APIService"): ("Name", "Service", "Available", "Age"),
    (ADMISSION, "ValidatingAdmissionPolicy"): ("Name", "Validations#", "ParamKind", "Age"),
    (ADMISSION, "ValidatingAdmissionPolicyBinding"): ("Name", "PolicyName", "ParamRef", "Age"),
    (ADMISSION, "MutatingWebhookConfiguration"): _WEBHOOKS,
    (ADMISSION, "ValidatingWebhookConfiguration"): _WEBHOOKS,
}
COLUMNS["events.k8s.io", "Event"] = COLUMNS["", "Event"]
