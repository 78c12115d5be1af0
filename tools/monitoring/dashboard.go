package main

import (
	"strconv"
)

// The grid of Grafana has 24 columns.
const (
	columns     = 24
	graphHeight = 8
	statHeight  = 4
	maxPerLine  = 3 // graphs
)

// dashboard is the JSON model of Grafana 10 and later, as far as it is needed.
type dashboard struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Description   string     `json:"description"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Editable      bool       `json:"editable"`
	Refresh       string     `json:"refresh"`
	Time          timeRange  `json:"time"`
	Templating    templating `json:"templating"`
	Panels        []item     `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Type       string      `json:"type"`
	Query      string      `json:"query"`
	Datasource *datasource `json:"datasource,omitempty"`
	Refresh    int         `json:"refresh"`
	Multi      bool        `json:"multi"`
	IncludeAll bool        `json:"includeAll"`
	Current    *current    `json:"current,omitempty"`
	Sort       int         `json:"sort"`
}

type current struct {
	Text  string `json:"text"`
	Value string `json:"value"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// item is a panel or the title of a row.
type item struct {
	ID          int          `json:"id"`
	Type        string       `json:"type"`
	Title       string       `json:"title"`
	Description string       `json:"description,omitempty"`
	GridPos     gridPos      `json:"gridPos"`
	Datasource  *datasource  `json:"datasource,omitempty"`
	Targets     []target     `json:"targets,omitempty"`
	FieldConfig *fieldConfig `json:"fieldConfig,omitempty"`
	Options     any          `json:"options,omitempty"`
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type target struct {
	RefID        string     `json:"refId"`
	Datasource   datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat,omitempty"`
	Instant      bool       `json:"instant,omitempty"`
}

type fieldConfig struct {
	Defaults  defaults `json:"defaults"`
	Overrides []any    `json:"overrides"`
}

type defaults struct {
	Unit       string      `json:"unit,omitempty"`
	Min        *int        `json:"min,omitempty"`
	Thresholds *thresholds `json:"thresholds,omitempty"`
}

type thresholds struct {
	Mode  string `json:"mode"`
	Steps []step `json:"steps"`
}

type step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

// source is the data source that the user of the dashboard selects.
func source() *datasource { return &datasource{Type: "prometheus", UID: "${datasource}"} }

func newDashboard() dashboard {
	d := dashboard{
		UID: "deltarouter", Title: "deltarouter", Description: "Written by tools/monitoring: run make generate.",
		Tags: []string{"deltarouter"}, SchemaVersion: 39, Editable: true, Refresh: "30s", Time: timeRange{"now-1h", "now"},
		Templating: templating{[]variable{
			{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus", Refresh: 1},
			labelValues("instance", "Router", "label_values(deltarouter_build_info, instance)"),
			labelValues("route", "Route", `label_values(deltarouter_route_queue_deltas{instance=~"$instance"}, route)`),
		}},
	}
	y := 0
	for _, r := range rows() {
		d.add(item{Type: "row", Title: r.title, GridPos: gridPos{H: 1, W: columns, Y: y}})
		y = d.addPanels(r.panels, y+1)
	}
	return d
}

// labelValues returns a variable whose values are those of a label.
func labelValues(name, label, query string) variable {
	return variable{
		Name: name, Label: label, Type: "query", Query: query, Datasource: source(),
		Refresh: 2, Multi: true, IncludeAll: true, Current: &current{"All", "$__all"}, Sort: 1,
	}
}

// addPanels adds the panels of a row below y, in lines of equal width, and returns the y below
// them.
func (d *dashboard) addPanels(panels []panel, y int) int {
	perLine, height := maxPerLine, graphHeight
	if panels[0].stat {
		perLine, height = len(panels), statHeight
	} else if len(panels) == 4 {
		perLine = 2
	}
	for len(panels) > 0 {
		line := panels[:min(perLine, len(panels))]
		width := columns / len(line)
		for i, p := range line {
			d.add(p.item(gridPos{H: height, W: width, X: i * width, Y: y}))
		}
		panels, y = panels[len(line):], y+height
	}
	return y
}

// add adds an item with the next id.
func (d *dashboard) add(i item) {
	i.ID = len(d.Panels) + 1
	d.Panels = append(d.Panels, i)
}

func (p panel) item(at gridPos) item {
	zero := 0
	i := item{
		Type: "timeseries", Title: p.title, Description: p.help, GridPos: at, Datasource: source(),
		FieldConfig: &fieldConfig{Defaults: defaults{Unit: p.unit, Min: &zero}, Overrides: []any{}},
		Options: map[string]any{
			"legend":  map[string]any{"displayMode": "list", "placement": "bottom"},
			"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
		},
	}
	if p.stat {
		i.Type = "stat"
		i.Options = map[string]any{"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}}, "textMode": p.textMode()}
		i.FieldConfig.Defaults.Thresholds = p.thresholds()
	}
	for n, q := range p.queries {
		i.Targets = append(i.Targets, target{
			RefID: string(rune('A' + n)), Datasource: *source(), Expr: expand(q.expr), LegendFormat: q.legend, Instant: p.stat,
		})
	}
	return i
}

// textMode shows the legend instead of the figure if that has the information.
func (p panel) textMode() string {
	if p.bad {
		return "value"
	}
	return "name"
}

func (p panel) thresholds() *thresholds {
	t := &thresholds{Mode: "absolute", Steps: []step{{Color: "green"}}}
	if p.bad {
		one := 1.0
		t.Steps = append(t.Steps, step{Color: "red", Value: &one})
	}
	return t
}

func formatQuantile(q float64) string { return strconv.FormatFloat(q, 'g', -1, 64) }
