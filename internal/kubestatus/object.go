// Package kubestatus is about the objects of the cluster that concern the router itself: it watches
// the routes that are objects of the cluster, keeps them for a restart without the API server, and
// writes their status; and it writes Kubernetes Events on the pod of the router ([Reporter]).
package kubestatus

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltarouter/deltarouter/internal/manifest"
)

// Kind is one of the two resources.
type Kind string

// The kinds of the resources.
const (
	Route        Kind = "Route"
	clusterRoute Kind = "ClusterRoute"
)

// plural returns the name of the resource in paths.
func (k Kind) plural() string { return strings.ToLower(string(k)) + "s" }

// source is the name of the source in metrics, logs and checks. No configured source has a dot.
func (k Kind) source() string { return k.plural() + "." + group }

// Key names an object.
type Key struct {
	Kind            Kind
	Namespace, Name string
}

// String returns the object as kubectl names it, with its namespace: route/web -n payments.
func (k Key) String() string {
	text := strings.ToLower(string(k.Kind)) + "/" + k.Name
	if k.Namespace != "" {
		text += " -n " + k.Namespace
	}
	return text
}

// Object is a route in the cluster. It is immutable.
type Object struct {
	Key

	UID        string
	Generation int64
	Created    string // as in the metadata, which authors cannot set
	Text       []byte // YAML as kubectl get shows it, without the status
	Status     Status `json:"-"` // as the API server has it
}

// Status is the status of an object.
type Status struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	Deltas             *Deltas            `json:"deltas,omitempty"`
}

// Deltas are the counts of the deltas of a route, as those of the status of the router.
type Deltas struct {
	Since        metav1.Time `json:"since"`
	Matched      uint64      `json:"matched"`
	Delivered    uint64      `json:"delivered"`
	HeldBack     uint64      `json:"heldBack"`
	Coalesced    uint64      `json:"coalesced"`
	Dropped      uint64      `json:"dropped"`
	Failed       uint64      `json:"failed"`
	DeadLettered uint64      `json:"deadLettered"`
	Shadowed     uint64      `json:"shadowed,omitempty"`
}

// is reports whether two counts are the same; nil: there is none.
func (d *Deltas) is(o *Deltas) bool {
	if d == nil || o == nil {
		return d == o
	}
	a, b := *d, *o
	a.Since, b.Since = metav1.Time{}, metav1.Time{}
	return a == b && d.Since.Equal(&o.Since)
}

// condition returns the condition of a type, or one without a status.
func (s *Status) condition(of string) metav1.Condition {
	i := slices.IndexFunc(s.Conditions, func(c metav1.Condition) bool { return c.Type == of })
	if i < 0 {
		return metav1.Condition{}
	}
	return s.Conditions[i]
}

// parse reads an object. The text of a former version of the object is kept if the generation is
// the same: lines of the metadata that move do not make it another text.
func parse(kind Kind, text []byte, former *Object) (*Object, error) {
	var fields map[string]json.RawMessage
	var read struct {
		Metadata struct {
			Namespace, Name, UID string
			CreationTimestamp    string
			Generation           int64
		}
		Status Status
	}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, err
	}
	m := read.Metadata
	o := &Object{Key: Key{kind, m.Namespace, m.Name}, UID: m.UID, Generation: m.Generation, Created: m.CreationTimestamp, Status: read.Status}
	if former != nil && former.UID == o.UID && former.Generation == o.Generation {
		o.Text = former.Text
		return o, nil
	}
	delete(fields, "status")
	rest, err := json.Marshal(fields)
	if err == nil {
		o.Text, err = manifest.ToYAML(rest)
	}
	return o, err
}

// Former returns the object with a former text. The API server always has another generation.
func (o *Object) Former(text []byte) *Object {
	return &Object{Key: o.Key, UID: o.UID, Created: o.Created, Text: text}
}

// sameSpec reports whether two objects are the same version of the same object.
func sameSpec(a, b *Object) bool {
	return a != nil && b != nil && a.UID == b.UID && a.Generation == b.Generation
}

// byAge sorts objects: the oldest ones first, so that new ones do not displace them at a limit.
func byAge(a, b *Object) int {
	return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
