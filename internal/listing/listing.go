// Package listing prints objects in the formats of `kubectl get`, and finds the source that a
// kubectl user means.
package listing

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/deltarouter/deltarouter/internal/manifest"
	"github.com/deltarouter/deltarouter/internal/similar"
)

// The formats. A JSONPath template follows jsonPathPrefix.
const (
	table          = "table"
	wide           = "wide"
	asJSON         = "json"
	asYAML         = "yaml"
	asName         = "name"
	jsonPathPrefix = "jsonpath="
)

// Formats lists the formats that have no template.
func Formats() []string { return []string{table, wide, asJSON, asYAML, asName} }

// Printer prints objects one after the other. Nothing that objects contain steers the terminal or
// begins a line, except in the output of a JSONPath template.
type Printer struct {
	out    io.Writer
	format string
	one    bool // one object is meant: it is no list
	path   *jsonpath.JSONPath
	rows   *tabwriter.Writer
	items  []any // for the template of a list
	n      int
}

// Check returns an error if there is no such format.
func Check(format string) error {
	_, err := New(io.Discard, format, false)
	return err
}

// New makes a Printer. With one, the only object is printed as it is, and not as a list of one.
func New(out io.Writer, format string, one bool) (*Printer, error) {
	p := &Printer{out: out, format: format, one: one, rows: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	template, isPath := strings.CutPrefix(format, jsonPathPrefix)
	switch {
	case isPath:
		if !strings.Contains(template, "{") {
			template = "{." + strings.TrimPrefix(template, ".") + "}"
		}
		p.format, p.path = jsonPathPrefix, jsonpath.New("-o").AllowMissingKeys(true)
		if err := p.path.Parse(template); err != nil {
			return nil, fmt.Errorf("jsonpath=%s is no JSONPath template (%w): write it like jsonpath='{.items[*].metadata.name}'", template, err)
		}
	case !slices.Contains(Formats(), format):
		known := append(Formats(), jsonPathPrefix+"TEMPLATE")
		return nil, fmt.Errorf("there is no format %q%s", format, similar.Suggest(format, known))
	}
	return p, nil
}

// Len returns the number of printed objects.
func (p *Printer) Len() int { return p.n }

// object is the part of an object that tables and names show.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		UID               string            `json:"uid"`
		ResourceVersion   string            `json:"resourceVersion"`
		CreationTimestamp time.Time         `json:"creationTimestamp"`
		Labels            map[string]string `json:"labels"`
		OwnerReferences   []struct {
			Kind       string `json:"kind"`
			Name       string `json:"name"`
			Controller bool   `json:"controller"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
}

// Print prints an object, or keeps it for [Printer.End].
func (p *Printer) Print(item json.RawMessage) error {
	p.n++
	switch p.format {
	case asJSON:
		return p.json(item)
	case asYAML:
		return p.yaml(item)
	case jsonPathPrefix:
		var value any
		if err := utiljson.Unmarshal(item, &value); err != nil {
			return fmt.Errorf("an object of the answer is no JSON: %w", err)
		}
		p.items = append(p.items, value)
		return nil
	}
	var o object
	_ = json.Unmarshal(item, &o) // fields of other types are left out
	if p.format == asName {
		name := o.Metadata.Name
		if o.Metadata.Namespace != "" {
			name = o.Metadata.Namespace + "/" + name
		}
		return p.line(p.out, name)
	}
	return p.row(&o)
}

func (p *Printer) row(o *object) error {
	header, cells := p.cells(o)
	if p.n == 1 {
		if err := p.line(p.rows, header...); err != nil {
			return err
		}
	}
	return p.line(p.rows, cells...)
}

// cells returns the header of the table and the row of an object.
func (p *Printer) cells(o *object) (header, cells []string) {
	m := &o.Metadata
	born, controller := "", ""
	if !m.CreationTimestamp.IsZero() {
		born = duration.HumanDuration(max(time.Since(m.CreationTimestamp), 0))
	}
	for _, owner := range m.OwnerReferences {
		if owner.Controller {
			controller = owner.Kind + "/" + owner.Name
		}
	}
	header, cells = []string{"NAMESPACE", "NAME", "AGE", "VERSION"}, []string{m.Namespace, m.Name, born, m.ResourceVersion}
	if p.format == wide {
		header = append(header, "UID", "CONTROLLER", "LABELS")
		cells = append(cells, m.UID, controller, labels(m.Labels))
	}
	return header, cells
}

func labels(all map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		pairs = append(pairs, name+"="+all[name])
	}
	return strings.Join(pairs, ",")
}

// line writes the cells of a line, and a dash for an empty one.
func (p *Printer) line(w io.Writer, cells ...string) error {
	_, err := fmt.Fprintln(w, strings.Join(clean(cells), "\t"))
	return err
}

// json prints one object as it is, and several as a list that kubectl understands.
func (p *Printer) json(item json.RawMessage) error {
	if p.one {
		encoder := json.NewEncoder(p.out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(item)
	}
	opening := ",\n"
	if p.n == 1 {
		opening = `{"apiVersion": "v1", "kind": "List", "items": [` + "\n"
	}
	_, err := fmt.Fprintf(p.out, "%s%s", opening, item)
	return err
}

// yaml prints documents, so that no object has to wait for the next one.
func (p *Printer) yaml(item json.RawMessage) error {
	text, err := manifest.ToYAML(item)
	if err != nil {
		return fmt.Errorf("an object of the answer: %w", err)
	}
	if p.n > 1 {
		text = append([]byte("---\n"), text...)
	}
	_, err = p.out.Write(text)
	return err
}

// End ends the output. The resourceVersion is that of the list.
func (p *Printer) End(resourceVersion string) error {
	switch {
	case p.path != nil:
		return p.template(resourceVersion)
	case p.format == asJSON && p.n == 0:
		_, err := fmt.Fprintf(p.out, `{"apiVersion": "v1", "kind": "List", "items": [], "metadata": {"resourceVersion": %q}}`+"\n", resourceVersion)
		return err
	case p.format == asJSON && !p.one:
		_, err := fmt.Fprintf(p.out, "\n], \"metadata\": {\"resourceVersion\": %q}}\n", resourceVersion)
		return err
	}
	return p.rows.Flush()
}

// template fills in the JSONPath template: with the object if one is meant, else with the list.
func (p *Printer) template(resourceVersion string) error {
	var value any = map[string]any{
		"apiVersion": "v1", "kind": "List", "items": p.items, "metadata": map[string]any{"resourceVersion": resourceVersion},
	}
	if p.one && len(p.items) == 1 {
		value = p.items[0]
	}
	if err := p.path.Execute(p.out, value); err != nil {
		return fmt.Errorf("the JSONPath template does not fit the objects: %w", err)
	}
	return nil
}
