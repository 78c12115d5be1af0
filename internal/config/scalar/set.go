package scalar

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// SetDefault sets v to the default of a tag. The default of a list is words separated by blanks.
// The error completes "must be …".
func SetDefault(v reflect.Value, text string) error {
	if v.Kind() != reflect.Slice {
		return Set(v, text)
	}
	for word := range strings.FieldsSeq(text) {
		element := reflect.New(v.Type().Elem()).Elem()
		if err := Set(element, word); err != nil {
			return err
		}
		v.Set(reflect.Append(v, element))
	}
	return nil
}

// Bound parses a min or max as a value of a type. The result is invalid if there is none.
func Bound(t reflect.Type, text string) reflect.Value {
	if text == "" {
		return reflect.Value{}
	}
	v := reflect.New(t).Elem()
	if Set(v, text) != nil {
		return reflect.Value{}
	}
	return v
}

// Set sets v from its text. The error completes "must be …".
func Set(v reflect.Value, text string) error {
	switch into := v.Addr().Interface().(type) {
	case *Size:
		return assign(into, text, parseSize)
	case *Count:
		return assign(into, text, parseCount)
	case *time.Duration:
		return assign(into, text, parseDuration)
	}
	var err error
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return errors.New("true or false")
		}
		v.SetBool(text == "true")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		var i int64
		if i, err = strconv.ParseInt(text, 10, v.Type().Bits()); err == nil {
			v.SetInt(i)
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		var u uint64
		if u, err = strconv.ParseUint(text, 10, v.Type().Bits()); err == nil {
			v.SetUint(u)
		}
	case reflect.Float32, reflect.Float64:
		var f float64
		if f, err = strconv.ParseFloat(text, v.Type().Bits()); err == nil && (f-f == 0) {
			v.SetFloat(f)
		} else {
			err = strconv.ErrSyntax
		}
	default:
		return fmt.Errorf("something that the router can decode (%s is a bug of the router)", v.Type())
	}
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%s of at most %d bits", Describe(v.Type()), v.Type().Bits())
	}
	if err != nil {
		return errors.New(Describe(v.Type()))
	}
	return nil
}

func assign[T any](into *T, text string, parse func(string) (T, error)) error {
	value, err := parse(text)
	if err == nil {
		*into = value
	}
	return err
}

// Describe describes the scalars of a type in words.
func Describe(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Size]():
		return "a size in bytes"
	case reflect.TypeFor[Count]():
		return "a whole number"
	case reflect.TypeFor[time.Duration]():
		return "a duration"
	}
	switch {
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Float32, t.Kind() == reflect.Float64:
		return "a number"
	case IsNumeric(t):
		return "a whole number"
	}
	return "text"
}

// IsNumeric reports whether values of a type are written without quotes. A size or a duration may
// be quoted.
func IsNumeric(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[Size](), reflect.TypeFor[Count](), reflect.TypeFor[time.Duration]():
		return false
	}
	return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Float64
}

// Less reports whether a number is less than another of the same type.
func Less(a, b reflect.Value) bool {
	switch {
	case a.CanInt():
		return a.Int() < b.Int()
	case a.CanUint():
		return a.Uint() < b.Uint()
	case a.CanFloat():
		return a.Float() < b.Float()
	}
	return false
}
