// A controller as people write them, with controller-runtime: informers, leader election, finalizers, status, events.
//
// It keeps a ConfigMap for every flower of a Garden, tells in the Garden's status how many there are, and leaves a
// compost (a ConfigMap that belongs to nobody) when the Garden goes. Built-in kinds travel as protobuf.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	finalizer = "demo.regional.io/compost"
	gardener  = "gardener"
)

type gardens struct {
	client.Client
	identity string
	recorder events.EventRecorder
}

func main() {
	namespace := flag.String("namespace", "default", "where to work")
	group := flag.String("group", "demo.regional.io", "of the kind Garden")
	identity := flag.String("identity", "", "written into what this process makes")
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseDevMode(true)))
	if err := run(*namespace, *group, *identity); err != nil {
		fmt.Fprintln(os.Stderr, "gardener:", err)
		os.Exit(1)
	}
}

func run(namespace, group, identity string) error {
	kinds := runtime.NewScheme()
	if err := scheme.AddToScheme(kinds); err != nil {
		return err
	}
	addGardens(kinds, group)
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                  kinds,
		Cache:                   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		LeaderElection:          true,
		LeaderElectionID:        gardener,
		LeaderElectionNamespace: namespace,
	})
	if err != nil {
		return err
	}
	reconciler := &gardens{manager.GetClient(), identity, manager.GetEventRecorder(gardener)}
	err = ctrl.NewControllerManagedBy(manager).For(&Garden{}).Owns(&corev1.ConfigMap{}).Complete(reconciler)
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func (g *gardens) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	garden := &Garden{}
	if err := g.Get(ctx, request.NamespacedName, garden); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !garden.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, g.compost(ctx, garden)
	}
	if controllerutil.AddFinalizer(garden, finalizer) {
		return ctrl.Result{}, g.Update(ctx, garden) // its event brings us back
	}
	if err := g.plant(ctx, garden); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, g.tell(ctx, garden)
}

// plant makes what is missing and removes what nobody wants any more.
func (g *gardens) plant(ctx context.Context, garden *Garden) error {
	wanted := map[string]bool{}
	for _, flower := range garden.Spec.Flowers {
		bed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: garden.Namespace, Name: garden.Name + "-" + flower,
		}}
		wanted[bed.Name] = true
		_, err := controllerutil.CreateOrUpdate(ctx, g.Client, bed, func() error {
			bed.Labels = map[string]string{"garden": garden.Name}
			if bed.Data["flower"] != flower {
				bed.Data = map[string]string{"flower": flower, "by": g.identity}
			}
			return controllerutil.SetControllerReference(garden, bed, g.Scheme())
		})
		if err != nil {
			return err
		}
	}
	beds := &corev1.ConfigMapList{}
	err := g.List(ctx, beds, client.InNamespace(garden.Namespace), client.MatchingLabels{"garden": garden.Name})
	if err != nil {
		return err
	}
	for _, bed := range beds.Items {
		if !wanted[bed.Name] {
			if err := client.IgnoreNotFound(g.Delete(ctx, &bed)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *gardens) tell(ctx context.Context, garden *Garden) error {
	before := garden.DeepCopy()
	garden.Status.Planted = int32(len(garden.Spec.Flowers))
	garden.Status.By = g.identity
	meta.SetStatusCondition(&garden.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Planted",
		Message:            strings.Join(garden.Spec.Flowers, ", "),
		ObservedGeneration: garden.Generation,
	})
	if garden.Status.equals(&before.Status) {
		return nil
	}
	g.recorder.Eventf(garden, nil, corev1.EventTypeNormal, "Planted", "Plant", "%d flowers", garden.Status.Planted)
	return g.Status().Patch(ctx, garden, client.MergeFrom(before))
}

func (g *gardens) compost(ctx context.Context, garden *Garden) error {
	if !controllerutil.ContainsFinalizer(garden, finalizer) {
		return nil
	}
	heap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: garden.Namespace, Name: garden.Name + "-compost"},
		Data:       map[string]string{"was": strings.Join(garden.Spec.Flowers, ","), "by": g.identity},
	}
	if err := g.Create(ctx, heap); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	before := garden.DeepCopy()
	controllerutil.RemoveFinalizer(garden, finalizer)
	return client.IgnoreNotFound(g.Patch(ctx, garden, client.MergeFrom(before)))
}
