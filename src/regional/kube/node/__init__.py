"""A node of a cluster: kubelet's and kube-proxy's roles, where a pod is a process.

Owns the processes, addresses, mounted files and logs of its pods, and the listeners of service addresses. Talks only to
its cluster's API (which starts it all by binding a pod to this node) and to the warm parent. The provisioner starts it;
`kubectl logs` reaches it through the API.
"""
