package inspect

import (
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// The API is unauthenticated. So it shows the keys of a Secret's data but never the values, nor
// annotations that may contain them, whatever the source's setting of secrets. Filters and look-ups
// of the API get the same redacted objects, since their results would reveal values.

// Placeholders for values. Answers use one that is not base64, so that it cannot be applied by
// mistake; expressions get valid base64.
const (
	shownAs     = `"(redacted)"`
	EvaluatedAs = `"KHJlZGFjdGVkKQ=="` // the same in base64
)

func isSecret(o *event.Object) bool {
	r := o.Resource()
	return r.Group == "" && r.Resource == "secrets"
}

// Redacted returns the object with each secret value replaced by value.
func Redacted(o *event.Object, value string) *event.Object {
	if o == nil || !isSecret(o) {
		return o
	}
	finder := rawjson.NewFinder()
	finder.Skip(0, "data")
	finder.Skip(0, "stringData")
	finder.SkipOthers(0, informer.SecretAnnotations(), "metadata", "annotations")
	text := string(o.Raw())
	end, spans, err := finder.Scan(text, 0)
	if err != nil {
		return event.Identity(o.Resource(), o.Key(), o.UID())
	}
	var b strings.Builder
	b.WriteByte('{')
	for _, field := range []string{"data", "stringData"} {
		if values := o.Raw().Get(field); values != "" {
			b.WriteString(`"` + field + `":` + withoutValues(values, value) + `,`)
		}
	}
	for i, piece := range rawjson.Cut(nil, text, 0, end, spans) {
		if i == 0 {
			piece = piece[1:]
		}
		b.WriteString(piece)
	}
	shown, err := event.ParseObject(o.Resource(), b.String())
	if err != nil {
		return event.Identity(o.Resource(), o.Key(), o.UID())
	}
	return shown
}

// withoutValues returns a JSON object with the same keys and the given value for each.
func withoutValues(values rawjson.Value, value string) string {
	var b strings.Builder
	for key := range values.Fields() {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(rawjson.Quote(key) + ":" + value)
	}
	return "{" + b.String() + "}"
}

// redactedCache gives redacted objects to expressions of the API.
type redactedCache struct{ cel.Cache }

// Lookup implements cel.Cache.
func (c redactedCache) Lookup(source, index, value string) []*event.Object {
	found := c.Cache.Lookup(source, index, value)
	if len(found) == 0 || !isSecret(found[0]) {
		return found
	}
	shown := make([]*event.Object, len(found))
	for i, o := range found {
		shown[i] = Redacted(o, EvaluatedAs)
	}
	return shown
}

// Get implements cel.Cache.
func (c redactedCache) Get(source, namespace, name string) *event.Object {
	return Redacted(c.Cache.Get(source, namespace, name), EvaluatedAs)
}
