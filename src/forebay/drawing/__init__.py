"""Charts, tables and pages as markup, made without any library: for browsers, notebooks and files."""

from forebay.drawing.chart import Chart as Chart
from forebay.drawing.chart import Series as Series
from forebay.drawing.chart import Subplot as Subplot
from forebay.drawing.chart import Tip as Tip
