// Command diagram draws the diagrams of the documents:
//
//	go run ./tools/diagram docs/img
//
// reads each *.diagram of the folder and writes NAME-light.svg and NAME-dark.svg beside it. A
// document shows them with <picture>, because the colours of a page are not known to an image. Each
// line of a diagram is one of
//
//	size WIDTH HEIGHT
//	title "The text for screen readers"
//	group X Y WIDTH HEIGHT "Title"
//	box ID X Y WIDTH HEIGHT "Title" "line" …
//	arrow FROM TO ["label"] [dashed] [both]
//	note X Y "text"
//	# a comment
//
// An arrow is straight if its boxes share rows or columns, else it leaves FROM sideways and enters
// TO from above or below.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: diagram FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "diagram:", err)
		os.Exit(1)
	}
}

// run draws all diagrams of a folder.
func run(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.diagram"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		images, err := draw(filepath.Base(file), string(text))
		if err != nil {
			return err
		}
		for name, svg := range images {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(svg), 0o644); err != nil { //nolint:gosec // a document
				return err
			}
		}
	}
	return nil
}

// draw returns the images of one diagram by file name.
func draw(file, text string) (map[string]string, error) {
	d, err := parse(file, text)
	if err != nil {
		return nil, err
	}
	images := map[string]string{}
	for _, t := range themes {
		images[strings.TrimSuffix(file, ".diagram")+"-"+t.name+".svg"] = d.svg(t)
	}
	return images, nil
}
