// Package config reads the router's YAML. It stands before the flow: [Load] makes a [Config] of a
// file, internal/app builds the stages from it.
//
// Three things set it apart from a plain yaml.Unmarshal:
//
//   - Every mistake is found in one go, and each [Problem] says where it is (file, line, column and
//     path), why, and what to do.
//   - A [Node] is a piece of YAML that has kept its place, so that a package that knows what a
//     piece means, such as a kind of sink, can decode it ([Node.Decode]) and report problems of its
//     own ([Node.Problemf]) as precisely as this package does.
//   - An [Expr] can translate a position inside a CEL expression to its place in the file, however
//     the expression was written.
//
// What a struct accepts is said by its tags alone, and the JSON Schema and docs/CONFIG.md
// (internal/config/reference) are made of the same tags:
//
//	yaml:"name"           the key; yaml:"-" is no key; without a tag, no key
//	yaml:"name,required"  must be present
//	yaml:"name,path"      a file: relative to the folder of the configuration file (URLs are left alone), if the [Policy] allows it
//	yaml:"name,written"   the same, of a file or folder that the router writes to
//	yaml:",self"          not a key: a Node that receives the piece itself
//	default:"10ms"        the value if the key is absent; for a list, its elements with blanks between them
//	enum:"skip deliver"   the only values; for a list, of its elements
//	min:"1" max:"10"      bounds of a number or duration, or of the length of a list or map
//	doc:"…"               one sentence for the schema and the reference
//
// Field types are strings, booleans, integers, floats, time.Duration, [Size], [Count], [Secret],
// [Expr], [Node] (kept as it is), structs, and pointers, slices and maps with string keys of those.
// ${VAR} and ${VAR:-default} are expanded in every scalar but an [Expr] (and $${ is ${); a value
// must be there: a key with nothing after it is a mistake unless a struct or map is expected.
//
// The YAML library is known to this package and to internal/config/yamlfile alone.
package config
