package event

import "time"

// Attributes calls yield with each attribute of the event that is not empty, as CloudEvents names and spells them, until it returns
// false: what a protocol carries beside the data. The first is specversion; the content type of the data is not among them.
func (e *Event) Attributes(yield func(name, value string) bool) {
	all := [...]struct{ name, value string }{
		{"specversion", "1.0"},
		{"id", e.ID},
		{"source", e.Source},
		{"type", e.Type},
		{"subject", e.Subject},
		{"time", ""},
		{"route", e.Route},
		{"k8suid", e.K8sUID},
		{"k8sresourceversion", e.K8sResourceVersion},
		{"redelivered", ""},
	}
	if !e.Time.IsZero() {
		all[5].value = e.Time.UTC().Format(time.RFC3339Nano)
	}
	if e.Redelivered {
		all[9].value = "true"
	}
	for _, a := range all {
		if a.value != "" && !yield(a.name, a.value) {
			return
		}
	}
}
