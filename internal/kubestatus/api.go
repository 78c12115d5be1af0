package kubestatus

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltarouter/deltarouter/internal/kubehttp"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

const component = "deltarouter"

// ErrForbidden means that the router may not create Events.
var ErrForbidden = errors.New("the API server forbids it")

// NewPodEvents returns a Reporter of Events about a pod. now returns the time.
func NewPodEvents(pod Pod, api *plugins.API, now func() time.Time) *Reporter {
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
	place, err := url.JoinPath(api.URL, "api/v1/namespaces", e.Namespace, "events")
	if err != nil {
		return err
	}
	status, err := kubehttp.Send(ctx, api.Client, http.MethodPost, place, e)
	switch {
	case err != nil:
		return err
	case status == http.StatusCreated:
		return nil
	case status == http.StatusForbidden:
		return ErrForbidden
	}
	return fmt.Errorf("the API server answers %d %s", status, http.StatusText(status))
}
