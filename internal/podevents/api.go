package podevents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltarouter/deltarouter/pkg/plugins"
)

const (
	component = "deltarouter"
	timeout   = 10 * time.Second // of one request
)

// ErrForbidden means that the router may not create Events.
var ErrForbidden = errors.New("the API server forbids it")

// New returns a Reporter of Events about a pod. now returns the time.
func New(pod Pod, api *plugins.API, now func() time.Time) *Reporter {
	send := func(ctx context.Context, e *corev1.Event) error { return create(ctx, api, e) }
	return &Reporter{pod: pod, create: send, now: now, limit: rate.NewLimiter(rate.Every(refill), burst), last: make(map[key]report)}
}

// newEvent returns a warning about the pod.
func newEvent(pod Pod, reason, message string, at time.Time) *corev1.Event {
	first := metav1.NewTime(at)
	return &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: pod.Name + "."},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID),
		},
		Type: corev1.EventTypeWarning, Reason: reason, Message: message, Count: 1, FirstTimestamp: first, LastTimestamp: first,
		Source: corev1.EventSource{Component: component}, ReportingController: component, ReportingInstance: pod.Name,
	}
}

// create sends an Event to the API server.
func create(ctx context.Context, api *plugins.API, e *corev1.Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	place, err := url.JoinPath(api.URL, "api/v1/namespaces", e.Namespace, "events")
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, place, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := api.Client.Do(request)
	if err != nil {
		return fmt.Errorf("the API server does not answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	// The rest of a small answer, so that the connection is used again.
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10)
	switch response.StatusCode {
	case http.StatusCreated:
		return nil
	case http.StatusForbidden:
		return ErrForbidden
	}
	return fmt.Errorf("the API server answers %s", response.Status)
}
