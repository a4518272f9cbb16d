"""What the tests here hand to kubectl."""

DEMO = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: main
          image: regional/regional:1
          ports: [{containerPort: 8080}]
          env: [{name: A, value: one}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
"""

WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.demo.io}
spec:
  group: demo.io
  scope: Namespaced
  names: {kind: Widget, plural: widgets, shortNames: [wd]}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, properties: {size: {type: integer, description: How big it is}}}
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""

WIDGET = "{apiVersion: demo.io/v1, kind: Widget, metadata: {name: w}, spec: {size: 3}}"
