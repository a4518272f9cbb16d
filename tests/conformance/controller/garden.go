package main

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type Garden struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GardenSpec   `json:"spec,omitempty"`
	Status            GardenStatus `json:"status,omitempty"`
}

type GardenSpec struct {
	Flowers []string `json:"flowers,omitempty"`
}

type GardenStatus struct {
	Planted    int32              `json:"planted"`
	By         string             `json:"by,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

type GardenList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Garden `json:"items"`
}

func addGardens(kinds *runtime.Scheme, group string) {
	groupVersion := schema.GroupVersion{Group: group, Version: "v1"}
	kinds.AddKnownTypes(groupVersion, &Garden{}, &GardenList{})
	metav1.AddToGroupVersion(kinds, groupVersion)
}

func (s *GardenStatus) equals(other *GardenStatus) bool { return reflect.DeepEqual(s, other) }

func (g *Garden) DeepCopy() *Garden {
	out := &Garden{TypeMeta: g.TypeMeta, Status: g.Status}
	g.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Flowers = append([]string(nil), g.Spec.Flowers...)
	out.Status.Conditions = append([]metav1.Condition(nil), g.Status.Conditions...)
	return out
}

func (g *Garden) DeepCopyObject() runtime.Object { return g.DeepCopy() }

func (l *GardenList) DeepCopyObject() runtime.Object {
	out := &GardenList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}
