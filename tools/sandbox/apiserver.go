package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	kubeoptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

const (
	apiserverStartTimeout = 2 * time.Minute
	// apiserverStopTimeout bounds the drain at stop: kube-apiserver would wait up to a minute for
	// running requests, which is too long here.
	apiserverStopTimeout = 3 * time.Second
)

// auditPolicy logs each request once (a watch at its start and at its end), except those of the
// server itself, of the sandbox, and to paths that are no resource.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:apiserver", "system:anonymous", "` + sandboxUser + `"]
- level: None
  nonResourceURLs: ["*"]
- level: Metadata
`

// startAPIServer starts kube-apiserver in this process. The returned function stops it and waits
// for it, for a bounded time.
func startAPIServer(ctx context.Context, d *dir, opts options, failed chan<- error) (func(), error) {
	listener, err := d.listenAPIServer(ctx)
	if err != nil {
		return nil, fmt.Errorf("kube-apiserver: %w", err)
	}
	args := apiserverArgs(d)
	if opts.audit {
		if err := os.WriteFile(d.file(auditRules), []byte(auditPolicy), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--audit-policy-file="+d.file(auditRules), "--audit-log-path="+d.file(auditLogFile))
	}
	// Last, so that they override the others.
	completed, err := apiserverOptions(ctx, listener, append(args, opts.apiserverArgs...))
	if err != nil {
		return nil, fmt.Errorf("kube-apiserver: %w", err)
	}
	// Independent of ctx: ctx first stops the users of the server.
	serverCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		err := serve(serverCtx, completed)
		if serverCtx.Err() == nil {
			failed <- fmt.Errorf("kube-apiserver ended: %w", err)
		}
	}()
	return func() {
		cancel()
		select {
		case <-stopped:
		case <-time.After(apiserverStopTimeout):
		}
	}, nil
}

// apiserverOptions parses flags the way the kube-apiserver command does. The command itself
// is not used, as it installs signal handlers.
// With a listener, the server uses it instead of the port of the flags.
func apiserverOptions(ctx context.Context, listener net.Listener, args []string) (kubeoptions.CompletedOptions, error) {
	s := kubeoptions.NewServerRunOptions()
	fs := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	namedFlagSets := s.Flags()
	for _, set := range namedFlagSets.FlagSets {
		fs.AddFlagSet(set)
	}
	var none kubeoptions.CompletedOptions
	if err := fs.Parse(args); err != nil {
		return none, err
	}
	if listener != nil {
		s.SecureServing.Listener = listener
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	completed, err := complete(ctx, s)
	if err != nil {
		return none, err
	}
	return completed, utilerrors.NewAggregate(completed.Validate())
}

// apiserverArgs are the flags of kube-apiserver. All other settings have their defaults.
func apiserverArgs(d *dir) []string {
	return []string{
		"--etcd-servers=" + d.etcdURL(),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(d.ports.APIServer),
		// Without it the server looks for a network interface, and there may be none.
		"--advertise-address=127.0.0.1",
		// The endpoints of the service "kubernetes" may not be loopback.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--tls-cert-file=" + d.key(servingCert),
		"--tls-private-key-file=" + d.key(servingKey),
		"--token-auth-file=" + d.file(tokensFile),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + d.key(accountKey),
		"--service-account-signing-key-file=" + d.key(accountKey),
		"--authorization-mode=RBAC",
		// No controller makes service accounts here, and with this plugin no pod could be created.
		"--disable-admission-plugins=ServiceAccount",
		"--allow-privileged=true",
		"--profiling=false",
		// Ends open watches at stop; otherwise the drain would wait for them.
		"--shutdown-watch-termination-grace-period=1s",
	}
}

// waitReady waits until the server is ready and has made the namespace default, which comes a
// little later.
func waitReady(ctx context.Context, cfg *rest.Config, failed <-chan error) error {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, apiserverStartTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		lastErr := errors.Join(
			isOK(ctx, client, cfg.Host+"/readyz"),
			isOK(ctx, client, cfg.Host+"/api/v1/namespaces/default"),
		)
		if lastErr == nil {
			return nil
		}
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver is not ready: %w", lastErr)
		case <-tick.C:
		}
	}
}
