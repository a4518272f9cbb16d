// Kubernetes' own control plane and etcd in one binary, and, if wanted, in one process.
//
//	kube etcd DIR URL PKI-DIR [--no-fsync]    a single-member etcd, for clients with a certificate of PKI-DIR/ca.crt
//	kube kube-apiserver FLAGS                 and kube-controller-manager, kube-scheduler: with their usual flags
//	kube wait URL CA-FILE                     until URL answers 200
//	kube all PART [-- PART]...                any of these in one process, each begun when the one before has started
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// The API server may take this long to answer what it has begun; what etcd has acknowledged is on disk in any case.
const stopGrace = 3 * time.Second

var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          schedulerCommand,
}

func main() {
	// Components in one process configure the same logger, one after another.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	ended := make(chan int, 8)
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	closers := []func(){}
	for _, part := range parts(os.Args[1:]) {
		closer, err := start(part, ended)
		if err != nil {
			fmt.Fprintf(os.Stderr, "kube: %v\n", err)
			os.Exit(1)
		}
		if closer != nil {
			closers = append(closers, closer)
		}
		if len(part) > 0 && part[0] == "wait" && len(os.Args) > 1 && os.Args[1] == "wait" {
			os.Exit(0)
		}
	}
	code := 0
	select {
	case code = <-ended:
	case <-stop: // the API server has seen it, too, and ends in an orderly way
		select {
		case code = <-ended:
		case <-time.After(stopGrace):
		}
	}
	for _, closer := range closers {
		closer()
	}
	os.Exit(code)
}

func parts(args []string) [][]string {
	if len(args) == 0 || args[0] != "all" {
		return [][]string{args}
	}
	all, part := [][]string{}, []string{}
	for _, arg := range append(args[1:], "--") {
		if arg == "--" {
			all, part = append(all, part), nil
		} else {
			part = append(part, arg)
		}
	}
	return all
}

func start(part []string, ended chan int) (func(), error) {
	switch {
	case len(part) > 3 && part[0] == "etcd":
		return startEtcd(part[1], part[2], part[3], len(part) > 4 && part[4] == "--no-fsync", ended)
	case len(part) == 3 && part[0] == "wait":
		return nil, await(part[1], part[2], ended)
	case len(part) > 0 && commands[part[0]] != nil:
		startCommand(part, ended)
		return nil, nil
	}
	return nil, errors.New("usage: kube etcd|kube-apiserver|kube-controller-manager|kube-scheduler|wait|all ...")
}

// Flag parsing and the set-up of logs touch globals of the process, so this returns when they are done with.
func startCommand(part []string, ended chan int) {
	cmd := commands[part[0]]()
	cmd.SetArgs(part[1:])
	parsed := make(chan struct{})
	cmd.PreRunE = func(*cobra.Command, []string) error { close(parsed); return nil }
	over := make(chan struct{})
	go func() {
		code := cli.Run(cmd)
		close(over)
		ended <- code
	}()
	select {
	case <-parsed:
		time.Sleep(100 * time.Millisecond)
	case <-over: // it refused its flags, and has said so
	}
}

// As scheduler.NewSchedulerCommand, but without its signal handler: a process may have one, and the API server takes it.
func schedulerCommand() *cobra.Command {
	options := scheduleroptions.NewOptions()
	cmd := &cobra.Command{
		Use:          "kube-scheduler",
		SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return options.ComponentGlobalsRegistry.Set()
		},
		RunE: func(*cobra.Command, []string) error {
			var gates featuregate.FeatureGate = options.ComponentGlobalsRegistry.FeatureGateFor(compatibility.DefaultKubeComponent)
			if err := logsapi.ValidateAndApply(options.Logs, gates); err != nil {
				return err
			}
			ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
			defer cancel()
			config, running, err := scheduler.Setup(ctx, options)
			if err != nil {
				return err
			}
			return scheduler.Run(ctx, config, running)
		},
	}
	for _, flags := range options.Flags.FlagSets {
		cmd.Flags().AddFlagSet(flags)
	}
	return cmd
}

// Returns when it serves: an API server that comes earlier is held up by the back-off of its connections.
func startEtcd(dir, client, pki string, noFsync bool, ended chan int) (func(), error) {
	address, err := url.Parse(client)
	if err != nil {
		return nil, err
	}
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.UnsafeNoFsync = dir, "warn", noFsync
	config.TickMs, config.ElectionMs = 10, 100                  // one member: it elects itself at once
	config.WarningUnaryRequestDuration = 300 * time.Millisecond // NewConfig leaves 0, and every request is logged
	// Whoever may read etcd may read every Secret: other users of this machine reach the port, but not past TLS.
	config.ClientTLSInfo = transport.TLSInfo{
		CertFile:       filepath.Join(pki, "server.crt"),
		KeyFile:        filepath.Join(pki, "server.key"),
		TrustedCAFile:  filepath.Join(pki, "ca.crt"),
		ClientCertAuth: true,
	}
	config.PeerTLSInfo = config.ClientTLSInfo
	config.ListenPeerUrls = []url.URL{{Scheme: "https", Host: address.Hostname() + ":0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*address}, []url.URL{*address}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return nil, fmt.Errorf("etcd: %w", err)
	}
	go func() {
		fmt.Fprintln(os.Stderr, "etcd:", <-etcd.Err())
		ended <- 1
	}()
	return etcd.Close, nil
}

func await(address, authority string, ended chan int) error {
	pem, err := os.ReadFile(authority)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	client := http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true},
	}
	for {
		if answer, err := client.Get(address); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case code := <-ended:
			return fmt.Errorf("a part ended (%d) before %s was ready", code, address)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
