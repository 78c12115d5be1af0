package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// box is a rectangle with text. A group is a box without an id, behind the others.
type box struct {
	id         string
	x, y, w, h int
	lines      []string // the title, and what stands below it
}

// arrow leads from the edge of one box to that of another.
type arrow struct {
	from, to     *box
	label        string
	dashed, both bool
}

// note is text beside the boxes.
type note struct {
	x, y int
	text string
}

// diagram is the content of a file.
type diagram struct {
	file   string
	w, h   int
	title  string
	groups []box
	boxes  []*box
	arrows []arrow
	notes  []note
}

// word is a quoted text or a run of other characters.
var word = regexp.MustCompile(`"[^"]*"|[^\s"]+`)

// parse reads a diagram. Its errors name the line.
func parse(file, text string) (*diagram, error) {
	d := &diagram{file: file}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		words := word.FindAllString(line, -1)
		for i := range words {
			words[i] = strings.Trim(words[i], `"`)
		}
		if err := d.add(words[0], words[1:]); err != nil {
			return nil, fmt.Errorf("%s:%d: %s: %w", file, i+1, words[0], err)
		}
	}
	if d.w == 0 || d.title == "" {
		return nil, fmt.Errorf("%s: size or title is missing", file)
	}
	return d, nil
}

// add adds one statement.
func (d *diagram) add(kind string, args []string) error {
	switch kind {
	case "size":
		return numbers(args, &d.w, &d.h)
	case "title":
		d.title = strings.Join(args, " ")
		return nil
	case "group":
		var g box
		err := numbers(args, &g.x, &g.y, &g.w, &g.h)
		g.lines = args[min(4, len(args)):]
		d.groups = append(d.groups, g)
		return err
	case "box":
		return d.addBox(args)
	case "arrow":
		return d.addArrow(args)
	case "note":
		var n note
		err := numbers(args, &n.x, &n.y)
		n.text = strings.Join(args[min(2, len(args)):], " ")
		d.notes = append(d.notes, n)
		return err
	}
	return errors.New("no such statement")
}

func (d *diagram) addBox(args []string) error {
	if len(args) < 6 {
		return errors.New("want ID X Y WIDTH HEIGHT and a title")
	}
	if d.box(args[0]) != nil {
		return fmt.Errorf("%s exists already", args[0])
	}
	b := &box{id: args[0], lines: args[5:]}
	d.boxes = append(d.boxes, b)
	return numbers(args[1:], &b.x, &b.y, &b.w, &b.h)
}

func (d *diagram) addArrow(args []string) error {
	if len(args) < 2 {
		return errors.New("want FROM and TO")
	}
	a := arrow{from: d.box(args[0]), to: d.box(args[1])}
	if a.from == nil || a.to == nil {
		return fmt.Errorf("no box %s or %s above", args[0], args[1])
	}
	for _, arg := range args[2:] {
		switch arg {
		case "dashed":
			a.dashed = true
		case "both":
			a.both = true
		default:
			a.label = arg
		}
	}
	d.arrows = append(d.arrows, a)
	return nil
}

func (d *diagram) box(id string) *box {
	for _, b := range d.boxes {
		if b.id == id {
			return b
		}
	}
	return nil
}

// numbers reads the first arguments.
func numbers(args []string, into ...*int) error {
	if len(args) < len(into) {
		return fmt.Errorf("want %d numbers", len(into))
	}
	for i, p := range into {
		n, err := strconv.Atoi(args[i])
		if err != nil {
			return fmt.Errorf("%s is no number", args[i])
		}
		*p = n
	}
	return nil
}
