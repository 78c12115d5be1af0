package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/kubehttp"
)

const (
	handshakeTimeout = 15 * time.Second
	// reasonTimeout bounds the wait for the reason behind the end of a connection.
	reasonTimeout = 5 * time.Second
	maxReason     = 4 << 10 // bytes
)

// tunnel is a port-forward to a pod. Each connection is a pair of streams, so no port of this
// machine is open, which other users could use.
type tunnel struct {
	pod    *pod
	stream httpstream.Connection
	closed chan struct{}
	once   sync.Once
	number atomic.Int64 // of the last connection
}

// tunnel opens a tunnel as kubectl does: over a WebSocket, or, if the API server or a proxy before
// it cannot, over SPDY.
func (p *pod) tunnel(ctx context.Context) (*tunnel, error) {
	target, err := p.url("portforward")
	if err != nil {
		return nil, err
	}
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(target, p.cfg)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(p.cfg)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	answer := &refusal{to: kubehttp.NoRedirects(transport)}
	overSPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: answer}, http.MethodPost, target)
	dialer := portforward.NewFallbackDialerForStreaming(overWebSocket, overSPDY, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	stream, err := dialed(ctx, dialer)
	switch {
	case err == nil:
		return &tunnel{pod: p, stream: stream, closed: make(chan struct{})}, nil
	case answer.status != 0:
		return nil, p.refused(answer.status, message(answer.text), "create", "pods/portforward")
	}
	return nil, p.unreachable(ctx, err)
}

// dialed calls a dialer, which takes no context.
func dialed(ctx context.Context, dialer httpstream.Dialer) (httpstream.Connection, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errors.New("it did not answer in time"))
	defer cancel()
	type result struct {
		stream httpstream.Connection
		err    error
	}
	done := make(chan result, 1)
	go func() {
		stream, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		if err == nil && ctx.Err() != nil {
			_ = stream.Close() // no caller waits for it any more
		}
		done <- result{stream, err}
	}()
	select {
	case r := <-done:
		return r.stream, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// refusal keeps the answer of an API server that opens no tunnel: the error of the dialer has only
// a text.
type refusal struct {
	to     http.RoundTripper
	status int
	text   []byte
}

// RoundTrip implements http.RoundTripper.
func (r *refusal) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.to.RoundTrip(request)
	if err != nil || response.StatusCode == http.StatusSwitchingProtocols {
		return response, err
	}
	r.status = response.StatusCode
	r.text, err = io.ReadAll(io.LimitReader(response.Body, maxReason))
	_ = response.Body.Close() // read
	response.Body = io.NopCloser(bytes.NewReader(r.text))
	return response, err
}

func (t *tunnel) close() {
	t.once.Do(func() {
		close(t.closed)
		_ = t.stream.Close() // nothing is left to be done
	})
}

// lost returns why the tunnel serves no more; nil: it does.
func (t *tunnel) lost() error {
	select {
	case <-t.closed:
		return net.ErrClosed
	default:
	}
	select {
	case <-t.stream.CloseChan():
		return &api.UnreachableError{Text: fmt.Sprintf("the connection to pod %s was lost: it may have been deleted or restarted; see kubectl -n %s get pod %s, and run the command again",
			t.pod, t.pod.namespace, t.pod.name)}
	default:
		return nil
	}
}

// dial opens a connection to the port of the pod. It has the type of http.Transport.DialContext,
// and the address is not used.
func (t *tunnel) dial(context.Context, string, string) (net.Conn, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(int(t.pod.port)))
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.FormatInt(t.number.Add(1), 10))
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	reason, err := t.open(headers)
	if err != nil {
		return nil, err
	}
	_ = reason.Close() // nothing is written to it
	c := &conn{tunnel: t, reason: reason, said: make(chan struct{}), closed: make(chan struct{})}
	go c.listen()
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	if c.data, err = t.open(headers); err != nil {
		// A kubelet that cannot connect may say so before it has accepted the stream.
		if why := c.why(); why != nil {
			err = why
		}
		_ = reason.Reset() // another error is returned
		t.stream.RemoveStreams(reason)
		return nil, err
	}
	return c, nil
}

// open opens a stream.
func (t *tunnel) open(headers http.Header) (httpstream.Stream, error) {
	if err := t.lost(); err != nil {
		return nil, err
	}
	stream, err := t.stream.CreateStream(headers)
	if err != nil {
		if lost := t.lost(); lost != nil {
			return nil, lost
		}
		return nil, &api.UnreachableError{Text: fmt.Sprintf("the kubelet opens no connection to pod %s: %v", t.pod, err)}
	}
	return stream, nil
}

// servesTLS reports whether the port serves TLS or plain HTTP.
func (t *tunnel) servesTLS(ctx context.Context, settings *tls.Config) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTimeout, errors.New("it did not answer in time"))
	defer cancel()
	err := t.handshake(ctx, settings)
	var record tls.RecordHeaderError
	var broken *brokenError
	var told *api.UnreachableError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &record) && bytes.HasPrefix(record.RecordHeader[:], []byte("HTTP/")):
		return false, nil
	case errors.As(err, &broken) || errors.Is(err, io.EOF):
		return false, nil // an HTTP server may close the connection instead of answering
	case errors.As(err, &told):
		return false, told
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return false, fmt.Errorf("port %d of pod %s serves neither HTTP nor TLS: is it the port of listen.api? Name that port of the container %q: %w", t.pod.port, t.pod, portName, err)
}

func (t *tunnel) handshake(ctx context.Context, settings *tls.Config) error {
	plain, err := t.dial(ctx, "", "")
	if err != nil {
		return err
	}
	defer plain.Close()
	settings.ServerName = "localhost"
	return tls.Client(plain, settings).HandshakeContext(ctx)
}
