package remote

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/kubehttp"
)

const (
	portName    = "api" // of the port of a container
	defaultPort = 8484

	// requestTimeout bounds a request to the API server, as kubectl's default does not.
	requestTimeout = 30 * time.Second
	maxPod         = 8 << 20 // bytes; larger than any object that etcd takes
)

// pod is the pod of a router.
type pod struct {
	*user

	namespace, name string
	port            int32
}

// String returns the name for messages.
func (p *pod) String() string { return p.namespace + "/" + p.name }

// url returns the URL of the pod, or of a subresource.
func (p *pod) url(sub ...string) (*url.URL, error) {
	base, _, err := rest.DefaultServerUrlFor(p.cfg)
	if err != nil {
		return nil, fmt.Errorf("the server of the kubeconfig: %w", err)
	}
	return base.JoinPath(append([]string{"api/v1/namespaces", p.namespace, "pods", p.name}, sub...)...), nil
}

// inPod returns a client of the router in a pod.
func inPod(ctx context.Context, o Options) (*api.Client, error) {
	u, err := loadUser(o)
	if err != nil {
		return nil, err
	}
	p := &pod{user: u}
	if p.namespace, p.name, err = o.pod(); err != nil {
		return nil, err
	}
	if p.namespace == "" {
		p.namespace = u.namespace
	}
	if err := p.find(ctx); err != nil {
		return nil, err
	}
	t, err := p.tunnel(ctx)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, t.close)
	// The tunnel ends in the pod that the API server and the kubelet have authenticated, so the
	// certificate of the router would add nothing, and its names need not fit.
	settings := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
	secure, err := t.servesTLS(ctx, settings.Clone())
	if err != nil {
		t.close()
		return nil, err
	}
	u.present(settings)
	transport := &http.Transport{DialContext: t.dial, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaders, TLSClientConfig: settings}
	way := api.Endpoint{Name: "pod " + p.String(), URL: "http://localhost", Transport: transport}
	if secure {
		way.URL = "https://localhost"
	}
	return api.NewClientAt(way.Wrapped(u.login)), nil
}

// find reads the pod, and the port of the API.
func (p *pod) find(ctx context.Context) error {
	client, err := rest.HTTPClientFor(p.cfg)
	if err != nil {
		return fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	defer client.CloseIdleConnections()
	client.Transport = kubehttp.NoRedirects(client.Transport)
	target, err := p.url()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errors.New("it did not answer in time"))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("the server of the kubeconfig: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return p.unreachable(ctx, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxPod))
	if err != nil {
		return p.unreachable(ctx, err)
	}
	if response.StatusCode != http.StatusOK {
		return p.refused(response.StatusCode, message(text), "get", "pods")
	}
	var found corev1.Pod
	if err := json.Unmarshal(text, &found); err != nil {
		return fmt.Errorf("the API server's answer about pod %s is no pod: %w", p, err)
	}
	return p.use(&found)
}

// use checks that the pod runs, and finds the port.
func (p *pod) use(found *corev1.Pod) error {
	switch {
	case found.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s is being deleted: wait for its successor, and run the command again", p)
	case found.Status.Phase != corev1.PodRunning:
		return fmt.Errorf("pod %s does not run, its phase is %s: see kubectl -n %s describe pod %s", p, found.Status.Phase, p.namespace, p.name)
	}
	p.port = portOf(found)
	return nil
}

// portOf returns the first port with the name, or the default.
func portOf(found *corev1.Pod) int32 {
	for i := range found.Spec.Containers {
		for _, port := range found.Spec.Containers[i].Ports {
			if port.Name == portName {
				return port.ContainerPort
			}
		}
	}
	return defaultPort
}

// unreachable words an error of a request to the API server.
func (p *pod) unreachable(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	return fmt.Errorf("the API server %s cannot be asked for pod %s: %w", p.cfg.Host, p, err)
}

// refused words a status of the API server.
func (p *pod) refused(status int, why, verb, resource string) error {
	switch status {
	case http.StatusNotFound:
		return fmt.Errorf("there is no pod %s in the cluster %s: see kubectl -n %s get pods", p, p.cfg.Host, p.namespace)
	case http.StatusUnauthorized:
		return fmt.Errorf("the API server %s does not accept the credentials of the kubeconfig: log in again, or choose another -context", p.cfg.Host)
	case http.StatusForbidden:
		return fmt.Errorf("you may not reach pod %s: a role in the namespace %s must allow %s on %s (%s)", p, p.namespace, verb, resource, why)
	}
	return fmt.Errorf("the API server %s refuses to reach pod %s: %s", p.cfg.Host, p, why)
}

// message returns the message of a Status, or the text itself.
func message(text []byte) string {
	var status struct{ Message string }
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		return status.Message
	}
	return strings.TrimSpace(string(text[:min(len(text), 1<<10)]))
}
